import { choice, integer, text } from '../core/setting.ts';

/** Settings of the log, and of traces. */
export const LOG_SETTINGS = {
  'log.level': choice(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
    default: 'info',
    doc: 'The lowest severity that is logged.',
    example: 'debug',
    flag: '--log-level <level>',
  }),
  'log.format': choice(['auto', 'json', 'pretty'], {
    default: 'auto',
    doc: 'The format of the log on stderr: one JSON object per line, or readable lines. `auto` is readable on a terminal and JSON elsewhere.',
    example: 'json',
    flag: '--log-format <format>',
  }),
  slowCallMs: integer({
    default: 10_000,
    min: 1,
    max: 86_400_000,
    unit: 'milliseconds',
    doc: 'Requests that take longer are logged. Failed requests always are.',
    example: '1000',
  }),
  'tracing.endpoint': text({
    default: '',
    defaultText: 'none: there are no spans',
    pattern: /^https?:\/\/[^\s/?#@]+(\/[^\s?#]*)?$/,
    shape: 'an http or https URL without a user, a query or a fragment',
    doc: 'The OTLP collector (HTTP, protobuf) for spans; without a path `/v1/traces` is added. `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and `OTEL_EXPORTER_OTLP_ENDPOINT` set it too.',
    example: 'http://127.0.0.1:4318/v1/traces',
  }),
} as const;
