#!/bin/sh
# Starts the head of a cluster on this machine, in the foreground: Ctrl-C or SIGTERM ends it.
#
#   ./head.sh                                    loopback only: for further nodes on this machine
#   NODE_IP=10.0.0.1 ./head.sh --num-cpus 8      for other machines, by this address of it
#
# NODE_IP is the one address at which everything listens, PORT that of the cluster (6379). Whoever
# joins needs the token in ~/.ray/auth_token, which is made here if it is not there. Further
# arguments go to `ray start`.
set -eu

export RAY_AUTH_MODE=token
(umask 077 && ray get-auth-token --generate >/dev/null) # Ray makes it readable for everybody

exec ray start --head --block --disable-usage-stats --include-dashboard=false \
  --node-ip-address "${NODE_IP:-127.0.0.1}" --port "${PORT:-6379}" "$@"
