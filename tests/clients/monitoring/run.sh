#!/usr/bin/env bash
# Runs suite.py: Prometheus, the dashboards, the rules and redis_exporter on servers of the program MYRIAD.
source "$(dirname "$0")/../prepare.sh" MYRIAD
use_venv monitoring
exec "$venv/bin/python" -B suite.py
