"""What each operator of ONNX computes, written in tensors; importing this fills the registry."""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")
