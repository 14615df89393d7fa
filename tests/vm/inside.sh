# For packages.sh and project.sh: a copy of a system, with the project's files of today, to run commands in.

enter() {
    local folder=$1 from=$2 cache=$3 file
    root=$folder/root
    cp --sparse=always "$from/disk.img" "$folder/disk.img"
    mkdir "$root"
    mount -o loop "$folder/disk.img" "$root"
    mkdir -p "$root/opt/warren" "$root/root/.cache" "$cache"
    find "$root/opt/warren" -mindepth 1 -maxdepth 1 ! -name .venv -exec rm -rf {} +
    tar --extract --directory "$root/opt/warren" --no-same-owner

    # What this machine reaches package indexes with, for the time of the build.
    mount --bind "$cache" "$root/root/.cache"
    for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
        if [ -s "$file" ]; then
            [ -e "$root$file" ] || touch "$root$file"
            mount --bind "$(realpath "$file")" "$root$file"
        fi
    done
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
}

inside() {
    chroot "$root" env HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        UV_LINK_MODE=copy "$@"
}
