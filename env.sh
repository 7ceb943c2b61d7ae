# Puts this build tree's programs, manual pages and completion into a shell: source env.sh
# ILOADER_BUILD chooses another build directory than build/release.

_iloader_tree=$(cd -- "$(dirname -- "${BASH_SOURCE[0]:-${(%):-%x}}")" && pwd)
_iloader_build=${ILOADER_BUILD:-$_iloader_tree/build/release}

if [ -x "$_iloader_build/iloader" ]; then
        case ":$PATH:" in
        *":$_iloader_build:"*) ;;
        *) PATH=$_iloader_build:$PATH ;;
        esac
        LD_LIBRARY_PATH=$_iloader_build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        export PATH LD_LIBRARY_PATH
        if [ -n "${BASH_VERSION-}" ]; then
                eval "$("$_iloader_build/iloader" completion bash)"
        fi
else
        echo "env.sh: $_iloader_build/iloader is not built yet: run 'make' in $_iloader_tree" >&2
fi
unset _iloader_tree _iloader_build
