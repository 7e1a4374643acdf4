/**
 * A log: `fields` carry the nouns, `message` is in the present tense and lower case. The logger of pino
 * implements it.
 */
export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}
