#!/usr/bin/env bash
# Runs suite.js, rate limits of @upstash/ratelimit, against HTTP_ADDR.
source "$(dirname "$0")/../prepare.sh" HTTP_ADDR
use_npm ci
exec node suite.js
