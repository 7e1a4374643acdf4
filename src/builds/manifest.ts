import { readFile, stat } from 'node:fs/promises';
import { posix } from 'node:path';
import { DEPENDENCY_FILES } from '../core/dependencies.ts';
import { failedPrecondition } from '../core/error.ts';
import { isJsonObject, type JsonObject } from '../core/json.ts';
import { LIMITS } from '../core/limits.ts';
import { type OpenedPath, openEntry } from '../lib/opened-path.ts';

/** Dependencies that the files beside some code request. */
export interface Manifest {
  /** Texts by name. Codes with equal files share one layer. */
  readonly files: Readonly<Record<string, string>>;
}

const MAX_BYTES = 16 * 1024 * 1024;
const MAX_FILES = 32;
/**
 * Matches a pyproject.toml that requests packages. No part crosses the end of its line: otherwise each of
 * many empty lines would start a scan of all others.
 */
const ASKS =
  /(?:^|\n)[^\S\n]*(?:dependencies[^\S\n]*=|\[[^\S\n]*(?:tool\.poetry|project)\.dependencies\b)|\bdynamic[^\S\n]*=/;
const NO_FILE = 'only packages of an index can be installed, and what is beside the code is on its path anyway';

/**
 * Reads the request of Python code: a lock with its pyproject.toml, else requirements.txt with the files it
 * names, else pyproject.toml. Returns null if nothing is requested. Fails with `failed_precondition`, a
 * sentence.
 */
export async function readPythonManifest(directory: OpenedPath): Promise<Manifest | null> {
  const read = new RequirementsReader(directory);
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
  // Most files named pyproject.toml only configure tools.
  return project !== null && ASKS.test(project) ? { files: { [PROJECT]: project } } : null;
}

/**
 * Reads the request of JavaScript code: package.json and its lock. Returns null if nothing is requested.
 * Fails with `failed_precondition`, a sentence.
 */
export async function readNodeManifest(directory: OpenedPath): Promise<Manifest | null> {
  const read = new RequirementsReader(directory);
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

/** Returns requirements.txt and the files that it names, directly or indirectly. */
async function requirementFiles(read: RequirementsReader): Promise<Manifest | null> {
  const [FIRST] = DEPENDENCY_FILES.pip;
  const files: Record<string, string> = {};
  // Each file once. The loop also visits names that it adds to the set.
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

/**
 * Yields the lines without comments and without empty ones. A generator, because a file may consist of line
 * ends only.
 */
function* linesOf(text: string): Generator<string> {
  const joined = text.replaceAll(/\\\r?\n/g, ' ');
  for (let at = 0; at < joined.length; ) {
    const end = joined.indexOf('\n', at);
    const line = joined.slice(at, end === -1 ? joined.length : end);
    at = end === -1 ? joined.length : end + 1;
    // Cut at the first comment. A pattern up to the end of the line would be tried again at each `#`.
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

class RequirementsReader {
  readonly #directory: OpenedPath;
  #bytes = 0;

  constructor(directory: OpenedPath) {
    this.#directory = directory;
  }

  /**
   * Returns the text; null if there is no such file. Links are ignored, because they may lead to files that
   * the client may not read.
   */
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
