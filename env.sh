# Puts this build tree's programs into a shell, and with bash their completion: . ./env.sh
# A shell other than bash and zsh must be in this directory. ILOADER_BUILD chooses another build directory than
# build/release. Manual pages: make man; man -l build/release/man/iloader.1

if [ -n "${BASH_VERSION-}" ]; then
        _iloader_tree=${BASH_SOURCE[0]}
elif [ -n "${ZSH_VERSION-}" ]; then
        # Other shells must not see the expansion, which they take for a fault.
        eval '_iloader_tree=${(%):-%x}'
else
        _iloader_tree=./env.sh
fi
_iloader_tree=$(cd -- "$(dirname -- "$_iloader_tree")" && pwd)
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
