'use strict';

/** Types are taken out of TypeScript by Node itself where it can, and else by what Node has for it inside, as a library. */

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
  // For `import`; these hooks run in a thread of their own.
  Module.register(pathToFileURL(`${__dirname}/typescript-hooks.mjs`));
}

/** Each line stays where it was. Fails with SyntaxError, whose stack begins with the place. */
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
