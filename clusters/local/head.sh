#!/bin/sh
# Starts the head of a cluster on this machine, in the foreground: Ctrl-C or SIGTERM ends it.
#
#   ./head.sh                                    for further nodes on this machine
#   NODE_IP=10.0.0.1 ./head.sh --num-cpus 8      for other machines, by this address of it
#
# NODE_IP is the address by which the others reach it (127.0.0.2: 127.0.0.1 would be taken for the
# machine's own address on its network), PORT that of the cluster (6379). Parts of Ray listen at
# every address of the machine: README.md. Whoever joins needs the token in ~/.ray/auth_token, which
# is made here if it is not there. Further arguments go to `ray start`.
set -eu

export RAY_AUTH_MODE=token
(umask 077 && ray get-auth-token --generate >/dev/null) # Ray makes it readable for everybody

exec ray start --head --block --disable-usage-stats --include-dashboard=false \
  --node-ip-address "${NODE_IP:-127.0.0.2}" --port "${PORT:-6379}" "$@"
