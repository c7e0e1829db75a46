#!/usr/bin/env bash
# Runs suite.js, job queues on BullMQ, against ADDR.
source "$(dirname "$0")/../prepare.sh" ADDR
# `npm ci` wants the optional packages of other platforms in the lock file, which npm omits there.
use_npm install --no-save --omit=optional
exec node suite.js
