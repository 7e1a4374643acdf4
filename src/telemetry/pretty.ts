import { ansi, type Style } from '../lib/ansi.ts';

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
