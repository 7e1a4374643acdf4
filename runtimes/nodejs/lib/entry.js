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
const NOT_FOUND = new Set(['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND']);
/** Error codes of Node for a module that `require` cannot load. Node reports them before the module runs. */
const NEEDS_IMPORT = new Set(['ERR_REQUIRE_ESM', 'ERR_REQUIRE_ASYNC_MODULE']);

/**
 * Returns the function that `<module>.<function>` names in a file below the code directory. Fails with 4001;
 * the message names the file and the reason.
 */
async function loadEntry(entry, codePath, kind) {
  const failure = why => new Failure(CODE.LOAD, `cannot load the ${kind} ${entry}: ${why}`);
  const dot = entry.lastIndexOf('.');
  const [moduleName, symbol] = [entry.slice(0, Math.max(0, dot)), entry.slice(dot + 1)];
  if (symbol === '' || !isModuleName(moduleName)) throw failure('it must have the form module.function');
  if (codePath === '') throw failure(`codePath is empty, so there is no directory to look for ${moduleName} in`);
  if (!isDirectory(codePath)) {
    const isFile = fs.existsSync(codePath);
    const why = isFile ? 'is a file and not a directory: unpack it, and mount the directory' : 'does not exist';
    throw failure(`the code directory ${codePath} ${why}`);
  }
  const { file, bases } = find(moduleName, codePath);
  if (file === null) {
    const link = brokenLink(bases, codePath);
    if (link !== undefined) throw failure(`module ${moduleName} not found: ${link}`);
    throw failure(`module ${moduleName} not found: there is no ${bases.join(' or ')} with ${EXTENSIONS.join(', ')}`);
  }
  let loaded;
  try {
    loaded = await loadModule(file);
  } catch (error) {
    logError(`cannot load the ${kind} ${entry}`, error);
    throw failure(`${placeOf(error, file)}: ${textOf(error)}${hintOf(error, file, codePath)}`);
  }
  const found = loaded[symbol] ?? loaded.default?.[symbol];
  if (found === undefined || found === null) throw failure(`${file} has no function ${symbol}`);
  if (typeof found !== 'function') throw failure(`${symbol} in ${file} is not a function but a ${typeof found}`);
  assertParameters(found, entry, kind);
  return found;
}

/**
 * Rejects functions with too many parameters. Code that expects a callback would never answer, and fail later
 * outside of any call.
 */
function assertParameters(found, entry, kind) {
  const expected = kind === 'handler' || kind === 'alarm entry' ? ['event', 'context'] : ['context'];
  if (found.length <= expected.length) return;
  const listed = /^[^(]*\(([^()]*)\)/.exec(Function.prototype.toString.call(found))?.[1].trim().replace(/\s+/g, ' ');
  const given = listed ? `(${listed})` : `${found.length}`;
  const right = `expected (${expected.join(', ')}); a callback is not called: return the value, or a promise of it`;
  throw new Failure(CODE.LOAD, `cannot use ${entry}: its parameters are ${given}, ${right}`);
}

/**
 * Returns true for names such as `tasks`, `pkg.tasks` and `dist/tasks`, which cannot leave the code
 * directory.
 */
function isModuleName(name) {
  return name.split(/[./]/).every(part => /^[\p{L}\p{M}\p{N}_$@-]+$/u.test(part));
}

/**
 * Finds the module's file. Dots separate directories, as in names of packages, or belong to the file's name.
 */
function find(moduleName, codePath) {
  const bases = [...new Set([moduleName.replaceAll('.', '/'), moduleName])].map(name => path.join(codePath, name));
  for (const base of bases) {
    for (const extension of EXTENSIONS) {
      if (isFile(base + extension)) return { file: base + extension, bases };
    }
  }
  return { file: null, bases };
}

/**
 * Returns a sentence about the first dangling link on the path of a module, or undefined if there is none.
 */
function brokenLink(bases, codePath) {
  const files = bases.flatMap(base => [...EXTENSIONS.map(extension => base + extension), base]);
  for (let at = path.dirname(bases[0]); at.startsWith(`${path.resolve(codePath)}/`); at = path.dirname(at))
    files.push(at);
  const link = files.find(
    file => fs.lstatSync(file, { throwIfNoEntry: false })?.isSymbolicLink() && !fs.existsSync(file),
  );
  return link && `${link} is a link to ${fs.readlinkSync(link)}, which does not exist inside the sandbox`;
}

async function loadModule(file) {
  if (/ts$/.test(file)) prepareTypeScript();
  // `require` is faster for CommonJS, and returns all exports of such a module.
  if (!isEcmaScriptModule(file)) {
    try {
      return createRequire(file)(file) ?? {};
    } catch (error) {
      if (!NEEDS_IMPORT.has(error?.code)) throw error;
    }
  }
  return await import(pathToFileURL(file).href);
}

/**
 * Returns where the code failed to load. A syntax error has its place before the stack; other errors have it
 * in the first frame outside Node.
 */
function placeOf(error, file) {
  const stack = typeof error?.stack === 'string' ? error.stack : '';
  if (error instanceof SyntaxError) {
    const line = decoratorLine(file);
    return syntaxPlace(stack) ?? syntaxPlace(check(file)) ?? (line > 0 ? `${file}:${line}` : file);
  }
  const frame = stack
    .split('\n')
    .find(line => /^\s+at .*\//.test(line) && !line.includes('node:') && !line.includes(__dirname));
  return /(?:file:\/\/)?(\/[^():]+:\d+)/.exec(frame ?? '')?.[1] ?? file;
}

/** Returns a hint about an error that a TypeScript compiler would have prevented, or `''`. */
function hintOf(error, file, codePath) {
  if (!/ts$/.test(file)) return '';
  if (error instanceof SyntaxError && decoratorLine(file) > 0) {
    return '; only types are taken out of TypeScript, and decorators stay: compile the code first';
  }
  if (!NOT_FOUND.has(error?.code)) return '';
  const isAlias = /'[@~]\//.test(error.message) || fs.existsSync(path.join(codePath, 'tsconfig.json'));
  return isAlias ? '; tsconfig.json is not read, so its "paths" are not known' : '';
}

/** Returns the line of the first decorator in a TypeScript file, or 0 if there is none. */
function decoratorLine(file) {
  if (!/ts$/.test(file)) return 0;
  return (
    fs
      .readFileSync(file, 'utf8')
      .split('\n')
      .findIndex(line => /^\s*@[A-Za-z_$]/.test(line)) + 1
  );
}

function syntaxPlace(text) {
  return /^(?:file:\/\/)?(\/.*:\d+)$/m.exec(text)?.[1];
}

/**
 * Returns Node's output about a file's syntax. For an ECMAScript module Node reports the place only in its
 * own output.
 */
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
