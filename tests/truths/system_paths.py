# SPDX-License-Identifier: Apache-2.0
"""Paths of files that a program may map, and whether these are of the system: their pages are no data then."""

PATHS = {
    "/usr/lib/locale/locale-archive": True,
    "/usr/share/GeoIP/city.mmdb": True,
    "/usr/local/pgsql/data/base/1": False,
    "/usr": False,
    "/usrlocal/x": False,
    "/lib64/ld-linux-x86-64.so.2": True,
    "/etc/ld.so.cache": True,
    "/nix/store/abc-glibc/lib/locale/x": True,
    "/var/lib/elasticsearch/index": False,
    "/srv/usr/lib/x": False,
    "/data/model.gguf": False,
    "": False,
}
