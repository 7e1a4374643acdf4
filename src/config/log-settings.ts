import { choice, integer } from '../core/setting.ts';

/** What is logged. */
export const LOG_SETTINGS = {
  'log.level': choice(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
    default: 'info',
    doc: 'The least severe lines that are logged.',
    example: 'debug',
    flag: '--log-level <level>',
  }),
  'log.format': choice(['auto', 'json', 'pretty'], {
    default: 'auto',
    doc: 'How the log is written to stderr: one JSON object per line, or a line for a person to read. `auto` is pretty on a terminal and JSON elsewhere.',
    example: 'json',
    flag: '--log-format <format>',
  }),
  slowCallMs: integer({
    default: 10_000,
    min: 1,
    max: 86_400_000,
    unit: 'milliseconds',
    doc: 'Requests that take longer than this are logged. Failed ones always are.',
    example: '1000',
  }),
} as const;
