import { type DestinationStream, destination, pino } from 'pino';
import { ansi, type Style } from '../lib/ansi.ts';

/** The logger interface for all parts of the service. Pino's loggers implement it. */
export interface Logger {
  trace(fields: object, message: string): void;
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  fatal(fields: object, message: string): void;
  /** Returns the same logger with these fields on every line: `logger.child({ traceId })`. */
  child(fields: object): Logger;
}

export interface LoggerOptions {
  readonly level: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent';
  readonly format: 'json' | 'pretty';
  /** Writes one whole line; absent: to stderr. */
  readonly write?: (line: string) => void;
  /** True when pretty lines have colours. */
  readonly hasColours?: boolean;
}

/** Names of fields whose values are hidden, up to two levels deep in a logged object. */
const SECRET_FIELDS = ['secret', 'token', 'password', 'authorization', 'x-auth', 'cookie', 'iam_token'];
/** Patterns that hide a JWT in any text, and `?token=` in any URL. */
const TOKEN = /\beyJ[\w-]{6,}\.[\w-]+\.[\w-]*/g;
const TOKEN_PARAMETER = /([?&](?:token|iam_token)=)[^&\s"\\]+/g;
const HIDDEN = '[hidden]';
/**
 * Limit of unwritten bytes. If the reader of stderr is too slow, lines are dropped and the service continues.
 */
const MAX_UNWRITTEN_BYTES = 8 * 1024 * 1024;

export function createLogger(options: LoggerOptions): Logger {
  const write = options.write ?? stderrWriter();
  const isPretty = options.format === 'pretty';
  const stream: DestinationStream = {
    write: line => {
      const clean = line.replace(TOKEN, HIDDEN).replace(TOKEN_PARAMETER, `$1${HIDDEN}`);
      write(isPretty ? prettyLine(clean, options.hasColours ?? false) : clean);
    },
  };
  return pino(
    {
      level: options.level,
      base: null,
      messageKey: 'message',
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: label => ({ level: label }) },
      redact: {
        paths: SECRET_FIELDS.flatMap(name => [`["${name}"]`, `*["${name}"]`, `*.*["${name}"]`]),
        censor: HIDDEN,
      },
    },
    stream,
  );
}

/** A logger that writes nothing, for tests and for commands that do not log. */
export const SILENT: Logger = {
  trace() {},
  debug() {},
  info() {},
  warn() {},
  error() {},
  fatal() {},
  child: () => SILENT,
};

/** Returns a function that writes in the background. Buffered lines are written when the process ends. */
function stderrWriter(): (line: string) => void {
  const stderr = destination({ dest: 2, sync: false, maxLength: MAX_UNWRITTEN_BYTES });
  return line => stderr.write(line);
}

const STYLES: Readonly<Record<string, Style>> = {
  trace: 'grey',
  debug: 'grey',
  info: 'green',
  warn: 'yellow',
  error: 'red',
  fatal: 'red',
};

/**
 * Formats a JSON line of the log for a person: `12:00:00.000 INFO  message key=value …`, then an error's
 * stack.
 */
export function prettyLine(line: string, hasColours: boolean): string {
  let entry: Record<string, unknown>;
  try {
    entry = JSON.parse(line) as Record<string, unknown>;
  } catch {
    return line;
  }
  const style = (name: Style, text: string): string => (hasColours ? ansi(name, text) : text);
  const { level, time, message, err, ...fields } = entry;
  const stack = isError(err) ? harmless(`\n${err.stack ?? err.message}`).replaceAll('\n', '\n    ') : '';
  const clock = typeof time === 'string' ? time.slice(11, 23) : '';
  const word = String(level).toUpperCase().padEnd(5);
  const pairs = Object.entries(fields).map(([name, value]) => ` ${style('grey', `${name}=`)}${show(value)}`);
  return `${style('grey', clock)} ${style(STYLES[String(level)] ?? 'bold', word)} ${harmless(String(message ?? ''))}${pairs.join('')}${stack}\n`;
}

function isError(value: unknown): value is { message: string; stack?: string } {
  return typeof value === 'object' && value !== null && 'message' in value;
}

function show(value: unknown): string {
  return typeof value === 'string' && /^[^\s"=\p{Cc}]+$/u.test(value) ? value : harmless(JSON.stringify(value));
}

/** Escapes control characters like JSON, because errors contain text of clients. Line ends and tabs stay. */
function harmless(text: string): string {
  return text.replace(/[^\P{Cc}\n\t]/gu, sign => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
