if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    # One that was stopped on purpose stays so.
    if [ "$1" -ge 1 ]; then
        systemctl try-restart myriad || true
    fi
fi
