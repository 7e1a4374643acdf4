import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream, type Dirent } from 'node:fs';
import { lstat, readdir, readFile, readlink, stat } from 'node:fs/promises';
import { dirname, join, posix, resolve } from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import tar, { type Pack } from 'tar-stream';
import { usageError } from './error.ts';
import { fileProblem } from './file-problem.ts';
import { IgnoreRules } from './ignore-rules.ts';

export interface PackOptions {
  /** The flag that named the directory, for errors. */
  readonly flag: string;
  /**
   * `kept`: packs links as links, which must lead into the directory. `followed`: packs the targets,
   * directories too.
   */
  readonly links: 'kept' | 'followed';
  /** Absolute path of a file that the archive always omits. */
  readonly leftOut?: string;
}

export interface Packed {
  /** SHA-256 of the archive. */
  readonly sha256: string;
  /** SHA-256 of the uncompressed content. */
  readonly contentSha256: string;
  readonly files: number;
  readonly bytes: number;
  /** Warnings: a sentence for each name of the directory that is of no use in the archive. */
  readonly warnings: readonly string[];
}

export const IGNORE_FILE = '.rookeryignore';
/** Names that the archive always omits: they belong to this machine, or are made again at the target. */
const LEFT_OUT = new Set(['.git', '__pycache__', 'node_modules', '.venv', IGNORE_FILE]);
/** Temporary files of editors: they disappear a moment later, or are links that lead nowhere. */
export const OF_EDITORS = /^(\.#.*|#.*#|.*~|\..*\.sw[a-p])$/;
const MAX_FILES = 50_000;
const EPOCH = new Date(0);

/** The rules of a directory's `.rookeryignore`, which work as in a `.gitignore`. */
interface Rules {
  /** Directory of the ignore file; `''`: the root. */
  readonly below: string;
  readonly rules: IgnoreRules;
}

/**
 * Packs a directory as tar.gz. Equal files give equal bytes: the archive has no times and no owners, and
 * names are sorted.
 */
export async function packDirectory(directory: string, archive: string, options: PackOptions): Promise<Packed> {
  const pack = tar.pack();
  const content = counter();
  const compressed = counter();
  const writing = pipeline(
    pack,
    content.stream,
    createGzip({ level: 6 }),
    compressed.stream,
    createWriteStream(archive, { flags: 'wx', mode: 0o600 }),
  );
  const walk = new Walk(directory, pack, options);
  await Promise.all([
    writing,
    walk.run().then(
      () => pack.finalize(),
      error => {
        pack.destroy(error as Error);
        throw error;
      },
    ),
  ]).catch(error => {
    // Other errors, such as a full disk. Problems of the directory have their own messages.
    const { syscall, path } = error as NodeJS.ErrnoException;
    if (syscall === undefined) throw error;
    const place = path === undefined ? '' : `${path}: `;
    throw usageError(`${options.flag}: ${directory} cannot be packed: ${place}${fileProblem(error)}.`);
  });
  return {
    sha256: compressed.sha256(),
    contentSha256: content.sha256(),
    files: walk.files,
    bytes: compressed.bytes(),
    warnings: walk.warnings,
  };
}

export async function codeDirectory(code: string, flag = '--code'): Promise<string> {
  const path = resolve(code);
  const found = await stat(path).catch(() => null);
  if (found === null)
    throw usageError(`${flag}: the directory ${path} does not exist. Name the directory of the code.`);
  if (!found.isDirectory())
    throw usageError(`${flag} must be a directory, and ${path} is a file. Name the directory of that file.`);
  return path;
}

class Walk {
  files = 0;
  readonly warnings: string[] = [];
  readonly #root: string;
  readonly #pack: Pack;
  readonly #options: PackOptions;

  constructor(root: string, pack: Pack, options: PackOptions) {
    this.#root = root;
    this.#pack = pack;
    this.#options = options;
  }

  async run(): Promise<void> {
    await this.#directory('', [], []);
  }

  /** `around`: identities of the directories that contain this one, however links led here. */
  async #directory(below: string, above: readonly Rules[], around: readonly string[]): Promise<void> {
    const rules = [...above, ...(await rulesOf(this.#root, below))];
    const within = this.#options.links === 'kept' ? around : [...around, await this.#identity(below)];
    for (const entry of (await this.#entries(below)).sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = below === '' ? entry.name : `${below}/${entry.name}`;
      if (LEFT_OUT.has(entry.name) || OF_EDITORS.test(entry.name)) continue;
      if (join(this.#root, path) === this.#options.leftOut) continue;
      const isLink = entry.isSymbolicLink();
      const isDirectory = entry.isDirectory() || (isLink && (await this.#isFollowedDirectory(path)));
      if (isIgnored(rules, path, isDirectory)) continue;
      await this.#checkName(path);
      if (isLink && this.#options.links === 'kept') await this.#link(path);
      else if (!isDirectory) await this.#file(path);
      // A link to a surrounding directory would never end, and that directory is already packed.
      else if (within.length === 0 || !within.includes(await this.#identity(path))) {
        this.#pack.entry({ name: `${path}/`, type: 'directory', mode: 0o755, mtime: EPOCH });
        await this.#directory(path, rules, within);
      }
    }
  }

  async #entries(below: string): Promise<Dirent[]> {
    try {
      return await readdir(join(this.#root, below), { withFileTypes: true });
    } catch (error) {
      throw usageError(
        `${this.#options.flag}: ${below || '.'} cannot be read: ${fileProblem(error)}. Leave it out with ${IGNORE_FILE}, or change its permissions.`,
      );
    }
  }

  async #isFollowedDirectory(path: string): Promise<boolean> {
    if (this.#options.links === 'kept') return false;
    const found = await stat(join(this.#root, path)).catch(() => null);
    return found?.isDirectory() === true;
  }

  async #identity(path: string): Promise<string> {
    const { dev, ino } = await stat(join(this.#root, path));
    return `${dev}:${ino}`;
  }

  /**
   * Refuses names that are not UTF-8, which an archive requires. Node reads their bytes as U+FFFD and finds
   * no file under the result.
   */
  async #checkName(path: string): Promise<void> {
    if (!path.includes('\ufffd') || (await lstat(join(this.#root, path)).catch(() => null)) !== null) return;
    throw usageError(
      `${this.#options.flag}: the name of ${path} is not UTF-8: rename it, or leave it out with ${IGNORE_FILE}.`,
    );
  }

  async #link(path: string): Promise<void> {
    const target = await readlink(join(this.#root, path));
    const leadsTo = posix.normalize(posix.join(dirname(path), target));
    if (target.startsWith('/') || leadsTo.split('/').includes('..')) {
      throw usageError(
        `${this.#options.flag}: ${path} is a link to ${target}, which is not in ${this.#root}: leave it out with ${IGNORE_FILE}, or put what it leads to there.`,
      );
    }
    if ((await stat(join(this.#root, path)).catch(() => null)) === null) {
      this.warnings.push(`${this.#options.flag}: ${path} is a link to ${target}, which does not exist.`);
    }
    this.#count();
    this.#pack.entry({ name: path, type: 'symlink', linkname: target, mode: 0o777, mtime: EPOCH });
  }

  async #file(path: string): Promise<void> {
    const found = await stat(join(this.#root, path)).catch(() => null);
    if (!found?.isFile()) {
      const why = found === null ? 'is a link that leads nowhere' : 'is neither a file nor a directory';
      this.warnings.push(`${this.#options.flag}: ${path} ${why}, and is left out.`);
      return;
    }
    this.#count();
    const mode = (found.mode & 0o111) === 0 ? 0o644 : 0o755;
    const entry = this.#pack.entry({ name: path, size: found.size, mode, mtime: EPOCH });
    await pipeline(createReadStream(join(this.#root, path)), entry).catch(error => {
      throw usageError(
        `${this.#options.flag}: ${path} cannot be read, or is being written: ${fileProblem(error)}. Leave it out with ${IGNORE_FILE}, or repeat the command.`,
      );
    });
  }

  #count(): void {
    this.files += 1;
    if (this.files > MAX_FILES) {
      throw usageError(
        `${this.#options.flag} ${this.#root} has more than ${MAX_FILES} files: leave out what is not needed with ${IGNORE_FILE}.`,
      );
    }
  }
}

async function rulesOf(root: string, below: string): Promise<readonly Rules[]> {
  const content = await readFile(join(root, below, IGNORE_FILE)).catch(() => null);
  return content === null ? [] : [{ below, rules: new IgnoreRules(content) }];
}

/**
 * Returns true if the rules exclude a path. The nearest ignore file decides, and within a file the last line
 * that matches.
 */
function isIgnored(all: readonly Rules[], path: string, isDirectory: boolean): boolean {
  let isLeftOut = false;
  for (const { below, rules } of all) {
    const own = below === '' ? path : path.slice(below.length + 1);
    isLeftOut = rules.isExcluded(own, isDirectory) ?? isLeftOut;
  }
  return isLeftOut;
}

function counter() {
  const hash = createHash('sha256');
  let bytes = 0;
  const stream = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk);
      bytes += chunk.length;
      done(null, chunk);
    },
  });
  return { stream, sha256: () => hash.digest('hex'), bytes: () => bytes };
}
