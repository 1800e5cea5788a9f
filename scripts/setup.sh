#!/usr/bin/env bash
# Installs what the tests start or call: real servers, clock, compiler and node, all from Debian.
# Safe to run again: when everything is there it only looks, and ends within a second.
#
# Servers are installed, never started: the tests start their own, on loopback, in temporary directories.
set -euo pipefail

# A line of need: a command that must exist, and the package that brings it.
# A command with a slash is a path (a pattern is allowed); PostgreSQL keeps its servers out of PATH.
needs='
gcc                                 gcc
/usr/include/stdint.h               libc6-dev
git                                 git
curl                                curl
python3                             python3
faketime                            faketime
redis-server                        redis-server
/usr/lib/postgresql/*/bin/postgres  postgresql
/usr/lib/postgresql/*/bin/psql      postgresql-client
valkey-server                       valkey-server
node                                nodejs
npm                                 npm
'

have() {
	case $1 in
	*/*) compgen -G "$1" >/dev/null ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

missing() {
	while read -r command package; do
		if [ -n "$command" ] && ! have "$command"; then
			echo "$package"
		fi
	done <<<"$needs" | sort -u
}

# valkey-server came to Debian after 12: there it is in the release's backports, on the same mirror as the release itself.
add_backports() {
	local sources=/etc/apt/sources.list.d/counterfoil-backports.sources codename uri keyring
	[ -e "$sources" ] && return
	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	uri=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $codename" | head -n 1)
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	if [ -z "$uri" ]; then
		echo "setup: no apt source for Debian $codename found; add $codename-backports yourself and run this again" >&2
		exit 1
	fi
	$sudo tee "$sources" >/dev/null <<-SOURCE
		Types: deb
		URIs: $uri
		Suites: $codename-backports
		Components: main
		Signed-By: $keyring
	SOURCE
	$sudo apt-get update -qq
}

# Debian starts a server as soon as it is installed, unless this file says no. One that is there already stays as it is.
refuse_service_starts() {
	local policy=/usr/sbin/policy-rc.d
	[ -e "$policy" ] && return
	printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
	$sudo chmod 755 "$policy"
	trap "$sudo rm -f $policy" EXIT
}

packages=$(missing)
[ -z "$packages" ] && exit 0

# shellcheck disable=SC2086 # The list is split on purpose.
echo "setup: installing" $packages
if ! command -v apt-get >/dev/null; then
	echo "setup: this is not Debian; install these yourself: $packages" >&2
	exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
	sudo='sudo -n'
	if ! sudo -n true 2>/dev/null; then
		echo "setup: run 'sudo $0' once, or install these yourself: $packages" >&2
		exit 1
	fi
fi
$sudo apt-get update -qq
if grep -qx valkey-server <<<"$packages" && [ -z "$(apt-cache search --names-only '^valkey-server$')" ]; then
	add_backports
fi
refuse_service_starts
# shellcheck disable=SC2086 # The list is split on purpose.
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	-o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 $packages </dev/null

packages=$(missing)
if [ -n "$packages" ]; then
	echo "setup: installed, but a command of these is still missing: $packages" >&2
	exit 1
fi
