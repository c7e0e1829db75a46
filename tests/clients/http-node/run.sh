#!/usr/bin/env bash
# Runs suite.js with the SDK of hosted Redis against HTTP_ADDR.
source "$(dirname "$0")/../prepare.sh" HTTP_ADDR
use_npm ci
exec node suite.js
