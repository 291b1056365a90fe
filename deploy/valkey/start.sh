#!/bin/sh
# Starts the broker. The password is read from the environment and given on standard input: it is in no file, and not
# among the arguments, which every process of the host can read.
#
# The user om may do what Celery and Flower do, under the prefix om: only; nobody else may do anything. The channels
# are open to it because a pattern subscription has to match its permission letter by letter.
set -eu
: "${OM_REDIS_PASSWORD:?is needed}"
exec valkey-server "$@" - <<CONFIG
user default off resetpass
user om on >${OM_REDIS_PASSWORD} resetkeys ~om:* resetchannels &* -@all \
+ping +hello +auth +select +client|setinfo +client|setname +client|id +info +time \
+lpush +rpush +brpop +rpop +llen +zadd +zrem +zrange +zrangebyscore \
+hset +hget +hdel +sadd +srem +smembers +set +get +del +pexpire +exists \
+multi +exec +watch +unwatch +discard +eval +evalsha +script|load +script|exists \
+publish +subscribe +unsubscribe +psubscribe +punsubscribe
CONFIG
