# The server replaces the file at CONFIG REWRITE. It may have a password.
install -d -o root -g myriad -m 770 /etc/myriad
install -d -o myriad -g myriad -m 700 /var/lib/myriad
# A failure of systemd must not leave the package half installed.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    # The distribution and its administrator choose which services start.
    if [ "$1" = 1 ]; then
        systemctl preset myriad || true
    fi
fi
