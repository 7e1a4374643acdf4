import type { Compilable, CompiledQuery, Kysely } from 'kysely';
import type { Tables } from './database.ts';

/** What runs queries: the database or a transaction. */
export type Queries = Pick<Kysely<Tables>, 'executeQuery'>;

/** A query that is built and compiled once and run many times. */
export type Prepared<P, R> = (queries: Queries, parameters: P) => Promise<R[]>;

/** A placeholder's text; no value of ours begins so. */
const MARK = '\0parameter:';

/**
 * Prepares a query for hot paths: building and compiling it costs more than running it. `build` gets each parameter by its name;
 * it may only hand them on to the query, as values.
 */
export function prepare<P extends object, R = unknown>(
  build: (parameters: P) => Compilable<R> | CompiledQuery<R>,
): Prepared<P, R> {
  const placeholders = new Proxy({} as P, { get: (_, name) => `${MARK}${String(name)}` });
  const built = build(placeholders);
  const compiled = 'sql' in built ? built : built.compile();
  const names = compiled.parameters.map(value =>
    typeof value === 'string' && value.startsWith(MARK) ? (value.slice(MARK.length) as keyof P) : null,
  );
  return async (queries, parameters) => {
    const values = names.map((name, index) => (name === null ? compiled.parameters[index] : parameters[name]));
    return (await queries.executeQuery<R>({ ...compiled, parameters: values })).rows;
  };
}
