# The owner of files must exist before they are installed.
if ! getent passwd myriad >/dev/null; then
    useradd --system --user-group --home-dir /var/lib/myriad --no-create-home \
        --shell /usr/sbin/nologin myriad
fi
