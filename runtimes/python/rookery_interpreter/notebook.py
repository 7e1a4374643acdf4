"""What code written for notebooks imports: `IPython.display`, if IPython is not installed, and matplotlib's `show`."""
import builtins
import importlib.abc
import importlib.util
import os
import sys
import types


class _Shown(object):
    """A value with data of one MIME type, such as `HTML('<b>x</b>')`."""

    kind = 'text/plain'

    def __init__(self, data=None, url=None, filename=None, **_options):
        if filename is not None:
            with open(filename, 'rb') as source:
                data = source.read()
            if self.kind.startswith('text') or self.kind.endswith('xml'):
                data = data.decode('utf-8')
        self.data = data
        self.url = url

    def _repr_mimebundle_(self, **_options):
        return {'text/plain': repr(self), self.kind: self.data}

    def __repr__(self):
        return '<%s object>' % type(self).__name__


class HTML(_Shown):
    kind = 'text/html'


class Markdown(_Shown):
    kind = 'text/markdown'


class Latex(_Shown):
    kind = 'text/latex'


class Math(Latex):
    pass


class SVG(_Shown):
    kind = 'image/svg+xml'


class JSON(_Shown):
    kind = 'application/json'


class Javascript(_Shown):
    kind = 'application/javascript'


class Pretty(_Shown):
    pass


class Image(_Shown):
    """An image from bytes, or from a file. The format is read from its first bytes."""

    def __init__(self, data=None, url=None, filename=None, **options):
        if isinstance(data, str) and url is None and filename is None:
            data, filename = None, data
        _Shown.__init__(self, data, url, filename, **options)

    def _repr_mimebundle_(self, **_options):
        if self.url is not None:
            return {'text/plain': repr(self), 'text/html': '<img src="%s"/>' % self.url}
        kind = 'image/jpeg' if bytes(self.data[:2]) == b'\xff\xd8' else 'image/png'
        return {'text/plain': repr(self), kind: self.data}


def clear_output(wait=False):
    """Does nothing: output that is sent stays."""


def _get_ipython():
    return builtins.get_ipython()


def _display(*values, **options):
    builtins.display(*values, **options)


_DISPLAY = (HTML, Markdown, Latex, Math, SVG, JSON, Javascript, Pretty, Image)
_MODULES = ('IPython', 'IPython.display', 'IPython.core', 'IPython.core.display', 'IPython.core.getipython')


class _StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of IPython after all other finders, so only if it is not installed."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in _MODULES:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=fullname in ('IPython', 'IPython.core'))

    def create_module(self, spec):
        return types.ModuleType(spec.name)

    def exec_module(self, module):
        module.get_ipython = _get_ipython
        module.display = _display
        module.clear_output = clear_output
        for each in _DISPLAY:
            setattr(module, each.__name__, each)
        if module.__name__ == 'IPython':
            del module.display  # a module of that name below this one


class _Patched(importlib.abc.MetaPathFinder):
    """Changes modules of notebooks right after their import."""

    def __init__(self):
        self._is_busy = False

    def find_spec(self, fullname, path=None, target=None):
        patch = _PATCHES.get(fullname)
        if patch is None or self._is_busy:
            return None
        self._is_busy = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_busy = False
        if spec is None or spec.loader is None or isinstance(spec.loader, _StandIn):
            return spec
        _patch_after(spec.loader, patch)
        return spec


def _patch_after(loader, patch):
    execute = loader.exec_module

    def exec_module(module):
        execute(module)
        patch(module)

    loader.exec_module = exec_module


def _patch_pyplot(pyplot):
    if os.environ.get('MPLBACKEND', 'agg').lower() == 'agg':
        pyplot.switch_backend('module://rookery_interpreter.figures')


def _patch_axes(_module):
    try:
        from rookery_interpreter import charts
        charts.record_boxes()
    except Exception:  # a release that `charts` cannot read: figures are images only
        pass


def _patch_display(module):
    module.display = _display


_PATCHES = {
    'matplotlib.axes': _patch_axes,
    'matplotlib.pyplot': _patch_pyplot,
    'IPython.core.display_functions': _patch_display,
    'IPython.display': _patch_display,
}


def install():
    """Prepares the process for code of notebooks. Programs that a cell starts draw to files."""
    os.environ.setdefault('MPLBACKEND', 'agg')
    sys.meta_path.insert(0, _Patched())
    sys.meta_path.append(_StandIn())


def show_figures():
    """Shows figures that a cell left open, as notebooks do."""
    if 'matplotlib.pyplot' in sys.modules and 'rookery_interpreter.figures' in sys.modules:
        sys.modules['rookery_interpreter.figures'].show()
