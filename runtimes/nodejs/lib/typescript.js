'use strict';

/**
 * Removes types from TypeScript: with Node itself if possible, otherwise with `amaro`, the library inside
 * Node.
 */

const fs = require('node:fs');
const Module = require('node:module');
const { pathToFileURL } = require('node:url');

const EXTENSIONS = ['.ts', '.cts', '.mts'];

let isPrepared = false;

function prepareTypeScript() {
  if (isPrepared || process.features.typescript) return;
  isPrepared = true;
  for (const extension of EXTENSIONS) {
    Module._extensions[extension] = (module, file) =>
      module._compile(withoutTypes(fs.readFileSync(file, 'utf8'), file), file);
  }
  // The hooks for `import` run in a separate thread.
  Module.register(pathToFileURL(`${__dirname}/typescript-hooks.mjs`));
}

/**
 * Returns the source without types; lines keep their numbers. Throws SyntaxError, whose stack begins with the
 * place.
 */
function withoutTypes(source, file) {
  const { transformSync } = require('amaro');
  try {
    return transformSync(source, { mode: 'strip-only', filename: file }).code;
  } catch (error) {
    const failure = new SyntaxError(error?.message ?? String(error));
    failure.stack = `${file}:${error?.startLine ?? 1}\n${failure.stack}`;
    throw failure;
  }
}

module.exports = { prepareTypeScript, withoutTypes };
