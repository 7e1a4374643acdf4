import { readFile, stat } from 'node:fs/promises';
import { posix } from 'node:path';
import { DEPENDENCY_FILES } from '../core/dependencies.ts';
import { failedPrecondition } from '../core/error.ts';
import { isJsonObject, type JsonObject } from '../core/json.ts';
import { LIMITS } from '../core/limits.ts';
import { type OpenedPath, openEntry } from '../lib/opened-path.ts';

/** What the files beside some code ask for. */
export interface Manifest {
  /** Their texts by their names; what two codes have in common makes one layer for both. */
  readonly files: Readonly<Record<string, string>>;
}

const MAX_BYTES = 16 * 1024 * 1024;
const MAX_FILES = 32;
/** Of a pyproject.toml. No piece passes the end of its line: from each of many empty lines it would look through all others. */
const ASKS =
  /(?:^|\n)[^\S\n]*(?:dependencies[^\S\n]*=|\[[^\S\n]*(?:tool\.poetry|project)\.dependencies\b)|\bdynamic[^\S\n]*=/;
const NO_FILE = 'only packages of an index can be installed, and what is beside the code is on its path anyway';

/**
 * Of Python code: a lock with its pyproject.toml, else requirements.txt with what it names, else pyproject.toml. Null when nothing is asked for.
 * Fails with `failed_precondition`, a sentence.
 */
export async function readPythonManifest(directory: OpenedPath): Promise<Manifest | null> {
  const read = new Reader(directory);
  const [, PROJECT, ...LOCKS] = DEPENDENCY_FILES.pip;
  const project = await read.text(PROJECT);
  if (project !== null) {
    for (const lock of LOCKS) {
      const text = await read.text(lock);
      if (text !== null) return { files: { [PROJECT]: project, [lock]: text } };
    }
  }
  const files = await requirementFiles(read);
  if (files !== null) return files;
  // Most of these only configure tools.
  return project !== null && ASKS.test(project) ? { files: { [PROJECT]: project } } : null;
}

/** Of JavaScript: package.json and its lock. Null when it asks for nothing. Fails with `failed_precondition`, a sentence. */
export async function readNodeManifest(directory: OpenedPath): Promise<Manifest | null> {
  const read = new Reader(directory);
  const [PACKAGE, ...LOCKS] = DEPENDENCY_FILES.npm;
  const text = await read.text(PACKAGE);
  if (text === null) return null;
  const { dependencies, optionalDependencies } = parse(text, PACKAGE);
  const all = { ...asObject(dependencies), ...asObject(optionalDependencies) };
  if (Object.keys(all).length === 0) return null;
  const local = Object.entries(all).find(([, version]) => /^(file:|link:|workspace:|[./~])/.test(String(version)));
  if (local !== undefined) throw failedPrecondition(`${PACKAGE}: ${local[0]} is a path: ${NO_FILE}`);
  for (const lock of LOCKS) {
    const locked = await read.text(lock);
    if (locked !== null) return { files: { [PACKAGE]: text, [lock]: locked } };
  }
  throw failedPrecondition(
    `${PACKAGE} has no package-lock.json beside it: "npm install --package-lock-only" makes one`,
  );
}

/** With the files that are named in it, and in those. */
async function requirementFiles(read: Reader): Promise<Manifest | null> {
  const [FIRST] = DEPENDENCY_FILES.pip;
  const files: Record<string, string> = {};
  // Each once, however often it is named; a set that grows is gone through to its end.
  const names = new Set([FIRST as string]);
  let asks = false;
  for (const name of names) {
    const text = await read.text(name);
    if (text === null && name === FIRST) return null;
    if (text === null) throw failedPrecondition(`${FIRST} names ${name}, and there is no such file beside it`);
    files[name] = text;
    for (const line of linesOf(text)) {
      const named = /^(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)/.exec(line)?.[1];
      if (named !== undefined && named.length > LIMITS.hostPathChars) throw tooLong(name, named);
      const path = named === undefined ? '' : posix.join(posix.dirname(name), named);
      if (/^\w[\w./-]*$/.test(named ?? '') && !path.startsWith('..')) names.add(path);
      else if (named !== undefined && !/^https?:\/\//.test(named)) throw wrongLine(name, line);
      else if (named === undefined && /^(-e\b|--editable\b|[./~]|file:)|@\s*file:/.test(line))
        throw wrongLine(name, line);
      if (names.size > MAX_FILES) throw failedPrecondition(`${FIRST} names more than ${MAX_FILES} files`);
      asks ||= !line.startsWith('-') || named !== undefined;
    }
  }
  return asks ? { files } : null;
}

/** Without comments and empty ones. One after the other: a file may be nothing but ends of lines. */
function* linesOf(text: string): Generator<string> {
  const joined = text.replaceAll(/\\\r?\n/g, ' ');
  for (let at = 0; at < joined.length; ) {
    const end = joined.indexOf('\n', at);
    const line = joined.slice(at, end === -1 ? joined.length : end);
    at = end === -1 ? joined.length : end + 1;
    // Cut where the first comment begins: a pattern up to the end of the line begins anew at each `#` when that end is none for it.
    const comment = line.search(/(?:^|\s)#/);
    const asked = (comment === -1 ? line : line.slice(0, comment)).trim();
    if (asked !== '') yield asked;
  }
}

function tooLong(name: string, named: string) {
  return failedPrecondition(
    `${name} names "${named.slice(0, 80)}…", which has ${named.length} characters, expected at most ${LIMITS.hostPathChars}`,
  );
}

function wrongLine(name: string, line: string) {
  return failedPrecondition(`${name}: "${line.slice(0, 200)}" is a path: ${NO_FILE}`);
}

class Reader {
  readonly #directory: OpenedPath;
  #bytes = 0;

  constructor(directory: OpenedPath) {
    this.#directory = directory;
  }

  /** Null when there is no such file. A link is none: it may lead to what the caller may not read. */
  async text(path: string): Promise<string | null> {
    const [first = '', ...rest] = path.split('/').filter(name => name !== '' && name !== '.');
    let found = await openEntry(this.#directory, first);
    for (const name of rest) {
      const inner = found?.kind === 'directory' ? await openEntry(found, name) : null;
      await found?.close();
      found = inner;
    }
    if (found === null) return null;
    try {
      if (found.kind !== 'file') return null;
      this.#bytes += (await stat(found.link)).size;
      if (this.#bytes > MAX_BYTES)
        throw failedPrecondition(`the files that name dependencies have more than ${MAX_BYTES} bytes`);
      return await readFile(found.link, 'utf8');
    } finally {
      await found.close();
    }
  }
}

function parse(text: string, name: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw failedPrecondition(`${name}: ${(error as Error).message}`);
  }
  if (!isJsonObject(value)) throw failedPrecondition(`${name} must be an object`);
  return value;
}

function asObject(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {};
}
