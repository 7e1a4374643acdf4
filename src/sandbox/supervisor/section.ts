import { failedPrecondition } from '../../core/error.ts';

export interface Section {
  readonly name: string;
  readonly argv: readonly string[];
  /** Whose program it is; for people only. */
  readonly instanceId: string;
  /** Where supervisord keeps what the program itself writes. */
  readonly logPath: string;
}

/** What the code has to end in when supervisord asks (10 s, `shim.py`), and then some. */
const STOP_WAIT_SECONDS = 15;

/**
 * A program's section of supervisord's configuration. supervisord starts it when it is asked to, and never again: the service decides
 * what follows an end. Fails with `failed_precondition` when a path cannot be written there.
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

/** As `shlex` reads it. */
function quote(word: string): string {
  return `"${escapeValue(word).replace(/["\\]/g, sign => `\\${sign}`)}"`;
}

/** `%` begins an expansion; a comment begins at `;` or `#` after a blank, in quotes too. */
function escapeValue(text: string): string {
  if (/[\r\n\0]|\s[;#]/.test(text)) {
    throw failedPrecondition(
      `supervisord's configuration cannot hold the path ${JSON.stringify(text)}: a newline, or a blank before ";" or "#"`,
    );
  }
  return text.replaceAll('%', '%%');
}
