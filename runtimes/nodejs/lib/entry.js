'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { createRequire } = require('node:module');
const { pathToFileURL } = require('node:url');
const { Failure, logError, textOf } = require('./failure.js');
const { isEcmaScriptModule } = require('./format.js');
const { CODE } = require('./protocol.js');
const { prepareTypeScript } = require('./typescript.js');

const EXTENSIONS = ['.js', '.mjs', '.cjs', '.ts', '.mts', '.cts'];
const CHECK_TIMEOUT_MS = 5_000;
/** Node says so of a module that `require` cannot load, before any of it has run. */
const NEEDS_IMPORT = new Set(['ERR_REQUIRE_ESM', 'ERR_REQUIRE_ASYNC_MODULE']);

/** The function that `<module>.<function>` names, of a file below the code directory. Fails with 4001 and which file and why. */
async function loadEntry(entry, codePath, kind) {
  const failure = why => new Failure(CODE.LOAD, `cannot load the ${kind} ${entry}: ${why}`);
  const dot = entry.lastIndexOf('.');
  const [moduleName, symbol] = [entry.slice(0, Math.max(0, dot)), entry.slice(dot + 1)];
  if (symbol === '' || !isModuleName(moduleName)) throw failure('it must have the form module.function');
  if (codePath === '') throw failure(`codePath is empty, so there is no directory to look for ${moduleName} in`);
  if (!isDirectory(codePath)) throw failure(`the code directory ${codePath} does not exist`);
  const { file, bases } = find(moduleName, codePath);
  if (file === null) {
    throw failure(`module ${moduleName} not found: there is no ${bases.join(' or ')} with ${EXTENSIONS.join(', ')}`);
  }
  let loaded;
  try {
    loaded = await loadModule(file);
  } catch (error) {
    logError(`cannot load the ${kind} ${entry}`, error);
    throw failure(`${placeOf(error, file)}: ${textOf(error)}`);
  }
  const found = loaded[symbol] ?? loaded.default?.[symbol];
  if (found === undefined || found === null) throw failure(`${file} has no function ${symbol}`);
  if (typeof found !== 'function') throw failure(`${symbol} in ${file} is not a function but a ${typeof found}`);
  return found;
}

/** `tasks`, `pkg.tasks`, `dist/tasks`: never out of the code directory. */
function isModuleName(name) {
  return name.split(/[./]/).every(part => /^[\w$@-]+$/.test(part));
}

/** Dots are directories, as in the names of packages, or part of the file's name. */
function find(moduleName, codePath) {
  const bases = [...new Set([moduleName.replaceAll('.', '/'), moduleName])].map(name => path.join(codePath, name));
  for (const base of bases) {
    for (const extension of EXTENSIONS) {
      if (isFile(base + extension)) return { file: base + extension, bases };
    }
  }
  return { file: null, bases };
}

async function loadModule(file) {
  if (/ts$/.test(file)) prepareTypeScript();
  // `require` is the faster way for CommonJS, and knows every name that it exports.
  if (!isEcmaScriptModule(file)) {
    try {
      return createRequire(file)(file) ?? {};
    } catch (error) {
      if (!NEEDS_IMPORT.has(error?.code)) throw error;
    }
  }
  return await import(pathToFileURL(file).href);
}

/** Where the code failed to load: a syntax error's place is before its stack, others have the first frame outside of Node. */
function placeOf(error, file) {
  const stack = typeof error?.stack === 'string' ? error.stack : '';
  if (error instanceof SyntaxError) return syntaxPlace(stack) ?? syntaxPlace(check(file)) ?? file;
  const frame = stack
    .split('\n')
    .find(line => /^\s+at .*\//.test(line) && !line.includes('node:') && !line.includes(__dirname));
  return /(?:file:\/\/)?(\/[^():]+:\d+)/.exec(frame ?? '')?.[1] ?? file;
}

function syntaxPlace(text) {
  return /^(?:file:\/\/)?(\/.*:\d+)$/m.exec(text)?.[1];
}

/** What Node says of a file's syntax: of an ECMAScript module it tells the place only when it prints the error itself. */
function check(file) {
  const { spawnSync } = require('node:child_process');
  const options = { encoding: 'utf8', timeout: CHECK_TIMEOUT_MS, stdio: ['ignore', 'ignore', 'pipe'] };
  return spawnSync(process.execPath, ['--check', file], options).stderr ?? '';
}

function isFile(file) {
  return fs.statSync(file, { throwIfNoEntry: false })?.isFile() ?? false;
}

function isDirectory(directory) {
  return fs.statSync(directory, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

module.exports = { loadEntry };
