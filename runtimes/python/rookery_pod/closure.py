"""Makes a Python that runs in any image, even without a libc: `python3 closure.py DIRECTORY`. Run when
Rookery's image is built.

Copies the current interpreter with its standard library, its shared libraries and its loader. All parts find
each other below one fixed path, even if the image has other files of those names. Needs `patchelf`.
"""

import compileall
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig

#: Path of the copy in a pod.
HOME = "/rookery"
_OURS = ("rookery_pod", "rookery_runtime", "rookery_zygote")
#: Parts of the standard library that a pod does not need, and additions of the distribution.
_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo", "turtle.py", "ensurepip", "pydoc_data",
    "site-packages", "dist-packages", "config-*", "sitecustomize.py", "EXTERNALLY-MANAGED", "*.a", "_test*.so", "_xxtest*.so",
    "_tkinter*.so", "_ctypes_test*.so", "xxlimited*.so", "LICENSE.txt",
)
_LIBRARY = re.compile(r"^\s*(?:(\S+) => )?(/\S+) \(0x")
_MANAGER = """#!%s/bin/python3 -IB
import sys
sys.path.insert(0, "%s/python")
from rookery_pod import manager
manager.main()
"""


def main():
    target = sys.argv[1]
    version = "python%d.%d" % sys.version_info[:2]
    binaries, libraries = os.path.join(target, "bin"), os.path.join(target, "lib")
    for path in (binaries, libraries):
        os.makedirs(path)
    interpreter = os.path.join(binaries, version)
    shutil.copy(os.path.realpath(sys.executable), interpreter)
    os.symlink(version, os.path.join(binaries, "python3"))
    modules = os.path.join(libraries, version)
    shutil.copytree(sysconfig.get_path("stdlib"), modules, ignore=_LEFT_OUT)
    _copy_libraries(interpreter, modules, libraries)
    paths = ["--set-interpreter", HOME + "/lib/ld.so", "--force-rpath", "--set-rpath", HOME + "/lib"]
    subprocess.check_call(["patchelf"] + paths + [interpreter])
    ours = os.path.join(target, "python")
    source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for package in _OURS:
        shutil.copytree(os.path.join(source, package), os.path.join(ours, package), ignore=_LEFT_OUT)
    program = os.path.join(binaries, "manager")
    with open(program, "w") as out:
        out.write(_MANAGER % (HOME, HOME))
    os.chmod(program, 0o755)
    _compile(modules, HOME + "/lib/" + version)
    _compile(ours, HOME + "/python")
    _let_everybody_read(target)


def _copy_libraries(interpreter, modules, target):
    """
    Copies the libraries of the interpreter and its modules.

    Skips missing ones: their modules fail here too.
    """
    found = {}
    programs = [interpreter]
    for directory, _directories, files in os.walk(modules):
        programs += [os.path.join(directory, name) for name in files if name.endswith(".so")]
    for program in programs:
        for line in subprocess.check_output(["ldd", program]).decode().splitlines():
            match = _LIBRARY.match(line)
            if match:
                name, path = match.groups()
                found["ld.so" if name is None else name] = path
    for name, path in found.items():
        shutil.copy(os.path.realpath(path), os.path.join(target, name))


def _compile(directory, shown_as):
    """Compiles the modules without a check for changes, since no process writes to the directory."""
    options = {}
    if sys.version_info >= (3, 7):
        import py_compile

        options["invalidation_mode"] = py_compile.PycInvalidationMode.UNCHECKED_HASH  # novm
    compileall.compile_dir(directory, ddir=shown_as, quiet=1, **options)


def _let_everybody_read(top):
    for directory, _directories, files in os.walk(top):
        os.chmod(directory, 0o755)
        for name in files:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755 if os.stat(path).st_mode & stat.S_IXUSR else 0o644)


if __name__ == "__main__":
    main()
