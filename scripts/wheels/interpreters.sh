# find_python VARIABLE VERSION...: prints the first interpreter of one of these versions that runs and has its headers.
# What VARIABLE names comes first; pyenv's versions are looked through as well, since its python3.12 need not run.
find_python() {
    variable=$1
    shift
    eval "named=\${$variable:-}"
    candidates=$named
    if [ -z "$named" ]; then
        candidates=python3
        for version in "$@"; do
            candidates="$candidates python$version $(ls -d "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version."*/bin/python3 2>/dev/null || true)"
        done
    fi
    for candidate in $candidates; do
        if "$candidate" - "$@" 2>/dev/null <<'PY'
import os, sys, sysconfig
named = "{}.{}".format(*sys.version_info) in sys.argv[1:]
headers = os.path.exists(sysconfig.get_path("include") + "/Python.h")
sys.exit(not (named and headers and not sysconfig.get_config_var("Py_GIL_DISABLED")))
PY
        then
            echo "$candidate"
            return
        fi
    done
    echo "dgpuhash: no Python $(echo "$*" | sed 's/ / or /g') with its headers was found${named:+ as $named};" \
        "install one (Debian/Ubuntu: apt install python3-dev), or set $variable" >&2
    return 1
}
