import { readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { failedPrecondition, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { backoffMs } from '../../lib/backoff.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { FAULTS, isFault, type ProgramInfo, type Supervisord } from './supervisord.ts';

const SUFFIX = '.conf';
/** Time limit for a program whose sandbox has ended to end by itself. */
const END_TIMEOUT_MS = 1_000;
/** Time limit of the whole removal, longer than the 15 s after which supervisord kills (see `section.ts`). */
const STOP_TIMEOUT_MS = 20_000;
const RETRY = { firstMs: 2, longestMs: 100 };
/** Maximum number of characters of a failed program's output in an error. */
const MOST_REASON_CHARS = 1_000;

/** The programs of this service in the operator's supervisord: sections, logs and lifetime. */
export class Programs {
  readonly #supervisord: Supervisord;
  readonly #includeDir: string;
  /** The beginning of all program names of this service: `rookery-<data directory's hash>-`. */
  readonly prefix: string;
  readonly #logger: Logger;
  #reloading: Promise<void> | null = null;
  #nextReload: Promise<void> | null = null;
  /**
   * Programs that supervisord still has to forget. It may have read their sections just before they were
   * removed.
   */
  readonly #owed = new Set<string>();

  constructor(supervisord: Supervisord, includeDir: string, prefix: string, logger: Logger) {
    this.#supervisord = supervisord;
    this.#includeDir = includeDir;
    this.prefix = prefix;
    this.#logger = logger;
  }

  /**
   * Writes a program's section and starts it; returns the pid of supervisord, its parent.
   * Removes everything on failure. Fails with `unavailable` or `failed_precondition`.
   */
  async launch(name: string, argv: readonly string[]): Promise<number> {
    await this.#checkIncludeDir();
    try {
      await this.#writeSection(name, argv, 'nobody yet');
      await this.#reload();
      const parent = await this.#supervisord.addAndStart(name);
      await this.repeatRemovals();
      return parent;
    } catch (error) {
      const explained = await this.#explain(name, error);
      await this.remove(name).catch(() => undefined);
      throw explained;
    }
  }

  /**
   * Records the program's instance in its section, for people, and links the program's log to the instance's
   * log.
   * Never rejects: no other part depends on it.
   */
  async name(program: string, argv: readonly string[], instanceId: string, logPath: string): Promise<void> {
    try {
      await this.#writeSection(program, argv, instanceId);
      await symlink(logPath, this.#temporary(program));
      await rename(this.#temporary(program), this.#logOf(program));
    } catch (error) {
      this.#logger.warn({ program, instanceId, error: messageOf(error) }, 'cannot name supervised program');
    }
  }

  /** Returns the pid of supervisord, the parent of all programs. Fails like `launch`. */
  parent(): Promise<number> {
    return this.#supervisord.pid();
  }

  /** Returns supervisord's report about a program; null when it does not know the program. */
  info(name: string): Promise<ProgramInfo | null> {
    return this.#supervisord.program(name);
  }

  /** Returns the last lines that a program wrote before it failed; `''` when there are none. */
  async lastWords(name: string): Promise<string> {
    const text = await readFile(this.#logOf(name), 'utf8').catch(() => '');
    return text.trim().split('\n').slice(-3).join(' ').slice(-MOST_REASON_CHARS);
  }

  /**
   * Ends a program and makes supervisord forget it. Returns when all of it is removed.
   * A missing program is a success. So is a supervisord that does not answer, because its programs end with
   * it. Fails with `unavailable` when the program does not end.
   */
  async remove(name: string): Promise<void> {
    await rm(this.#sectionOf(name), { force: true });
    await rm(this.#temporary(name), { force: true });
    const deadlineMs = Date.now() + STOP_TIMEOUT_MS;
    let stopAtMs = Date.now() + END_TIMEOUT_MS;
    try {
      for (let tries = 1; !(await this.#supervisord.removeGroup(name)); tries++) {
        if (Date.now() >= deadlineMs) throw unavailable(`the supervised program ${name} does not end`);
        if (Date.now() >= stopAtMs) {
          await this.#supervisord.stop(name);
          stopAtMs = deadlineMs;
        }
        await delay(backoffMs(RETRY, tries));
      }
    } catch (error) {
      const { pid } = (await this.info(name).catch(() => null)) ?? { pid: 0 };
      if (pid !== 0) throw error;
      this.#owed.add(name);
      this.#logger.warn(
        { program: name, error: messageOf(error) },
        'supervisord could not be asked to forget a program',
      );
    } finally {
      // Last, because supervisord opens the log when it starts the program.
      await rm(this.#logOf(name), { force: true });
    }
  }

  /** Repeats removals that supervisord missed while it did not answer. Never rejects. */
  async repeatRemovals(): Promise<void> {
    for (const name of this.#owed) {
      const isGone = await this.#supervisord.removeGroup(name).catch(() => false);
      if (isGone) this.#owed.delete(name);
    }
  }

  /**
   * Returns the names of all programs of this service, from section files and from supervisord.
   * A supervisord that does not answer adds none.
   */
  async list(): Promise<readonly string[]> {
    const files = await readdir(this.#includeDir).catch(() => []);
    const known = await this.#supervisord.programs().catch(() => []);
    const names = [
      ...files.filter(file => file.endsWith(SUFFIX)).map(file => file.slice(0, -SUFFIX.length)),
      ...known.map(info => info.name),
    ];
    return [...new Set(names.filter(name => name.startsWith(this.prefix)))];
  }

  /** Makes supervisord read its configuration after this call. Calls during a read share the next one. */
  #reload(): Promise<void> {
    if (this.#reloading === null) {
      this.#reloading = this.#supervisord.reloadConfig().finally(() => {
        this.#reloading = null;
      });
      return this.#reloading;
    }
    this.#nextReload ??= this.#reloading
      .catch(() => undefined)
      .then(() => {
        this.#nextReload = null;
        return this.#reload();
      });
    return this.#nextReload;
  }

  async #writeSection(name: string, argv: readonly string[], instanceId: string): Promise<void> {
    const text = sectionOf({ name, argv, instanceId, logPath: this.#logOf(name) });
    // The name begins with a dot, so that no pattern of an `[include]` matches it.
    const temporary = this.#temporary(name);
    await writeFile(temporary, text, { mode: 0o600 });
    await rename(temporary, this.#sectionOf(name));
  }

  async #checkIncludeDir(): Promise<void> {
    const found = await stat(this.#includeDir).catch(() => null);
    if (found?.isDirectory()) return;
    throw failedPrecondition(
      `supervisor.includeDir ${this.#includeDir} is not a directory: make it, and ${this.#advice()}`,
    );
  }

  /** Returns the error that explains a failed launch. */
  async #explain(name: string, error: unknown): Promise<unknown> {
    if (error instanceof ServiceError) return error;
    if (isFault(error, FAULTS.badName)) {
      return failedPrecondition(`supervisord does not read ${this.#sectionOf(name)}: ${this.#advice()}`, {
        cause: error,
      });
    }
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS') {
      return failedPrecondition(`supervisor.includeDir cannot be written to: ${messageOf(error)}`, { cause: error });
    }
    const info = await this.info(name).catch(() => null);
    const why = info?.spawnError === undefined || info.spawnError === '' ? messageOf(error) : info.spawnError;
    return unavailable(`supervisord cannot start a program of Rookery: ${why}`, { cause: error });
  }

  #advice(): string {
    return (
      `put \`files = ${join(this.#includeDir, '*.conf')}\` into the section [include] of supervisord.conf ` +
      '(several patterns stand in one line, with blanks between them), and run supervisord as the user of this service'
    );
  }

  #sectionOf(name: string): string {
    return join(this.#includeDir, name + SUFFIX);
  }

  #logOf(name: string): string {
    return join(this.#includeDir, `.${name}.log`);
  }

  #temporary(name: string): string {
    return join(this.#includeDir, `.${name}.new`);
  }
}

export interface Section {
  readonly name: string;
  readonly argv: readonly string[];
  /** Id of the instance, for people only. */
  readonly instanceId: string;
  /** Path of the log to which supervisord writes the program's own output. */
  readonly logPath: string;
}

/** Seconds that supervisord waits before it kills: longer than the 10 s that `shim.py` gives the code. */
const STOP_WAIT_SECONDS = 15;

/**
 * Returns a program's section for supervisord's configuration. Fails with `failed_precondition` on an
 * unwritable path.
 * supervisord starts the program on request only, and never restarts it: the service decides what follows an
 * exit.
 */
export function sectionOf({ name, argv, instanceId, logPath }: Section): string {
  return `; Written by Rookery, which removes it with the instance. Instance: ${instanceId}
[program:${name}]
command = ${argv.map(quote).join(' ')}
autostart = false
autorestart = false
startsecs = 0
startretries = 0
stopsignal = TERM
stopwaitsecs = ${STOP_WAIT_SECONDS}
stopasgroup = false
killasgroup = false
redirect_stderr = true
stdout_logfile = ${escapeValue(logPath)}
stdout_logfile_maxbytes = 0
stdout_logfile_backups = 0
`;
}

/** Quotes a word for `shlex`. */
function quote(word: string): string {
  return `"${escapeValue(word).replace(/["\\]/g, sign => `\\${sign}`)}"`;
}

/** Escapes `%`, which begins an expansion. Rejects ` ;` and ` #`, which begin a comment even in quotes. */
function escapeValue(text: string): string {
  if (/[\r\n\0]|\s[;#]/.test(text)) {
    throw failedPrecondition(
      `supervisord's configuration cannot hold the path ${JSON.stringify(text)}: a newline, or a blank before ";" or "#"`,
    );
  }
  return text.replaceAll('%', '%%');
}
