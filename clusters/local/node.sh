#!/bin/sh
# Starts a further node, in the foreground: Ctrl-C or SIGTERM ends it, and the cluster goes on.
#
#   ./node.sh                                                  on the machine of the head
#   HEAD=10.0.0.1:6379 NODE_IP=10.0.0.2 ./node.sh --num-cpus 8
#
# ~/.ray/auth_token must be the one of the head. Further arguments go to `ray start`: --resources,
# --labels and --num-gpus say what this node has.
set -eu

export RAY_AUTH_MODE=token
if [ -z "${RAY_AUTH_TOKEN:-}" ] && [ ! -s "${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}" ]; then
  echo "no token: copy ~/.ray/auth_token of the head to this machine (mode 0600)" >&2
  exit 2
fi

exec ray start --block --disable-usage-stats \
  --node-ip-address "${NODE_IP:-127.0.0.2}" --address "${HEAD:-127.0.0.2:6379}" "$@"
