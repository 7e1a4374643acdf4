# Made by `npm run generate` from _async/__init__.py.
