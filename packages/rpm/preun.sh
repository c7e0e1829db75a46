# An upgrade restarts the server after its program is replaced.
if [ "$1" = 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now myriad || true
fi
