import { failedPrecondition } from '../../core/error.ts';

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
