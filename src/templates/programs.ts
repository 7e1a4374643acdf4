import { messageOf } from '../core/error.ts';
import type { Log } from '../lib/log.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import { findTemplate } from './templates.ts';

/** Bound of the start of one program. */
const START_MS = 10_000;

/**
 * Starts the programs of a template in a sandbox that has just started. Does not wait until they listen.
 * Never rejects: a program that does not start is logged, and the sandbox is usable without it.
 */
export async function startPrograms(
  template: string,
  programsDir: string,
  access: SandboxAccess,
  log: Log,
): Promise<void> {
  for (const { tag, user, argv, env } of findTemplate(template)?.programs ?? []) {
    try {
      const request = { argv: argv(programsDir), user, env, tag, workingDir: '', terminal: null, stdin: false };
      const signal = AbortSignal.timeout(START_MS);
      const process = await access.startProcess({ ...request, timeLimitMs: 0, hidden: true }, signal);
      process.ended.catch(() => undefined);
      process.close();
    } catch (error) {
      log.warn({ template, program: tag, error: messageOf(error) }, 'program of the template does not start');
    }
  }
}
