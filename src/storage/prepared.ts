import type { Compilable, CompiledQuery, Kysely } from 'kysely';
import type { Tables } from './database.ts';

/** What runs queries: the database or a transaction. */
export type Queries = Kysely<Tables>;

/** A query that is built and compiled once and run many times. */
export type Prepared<P, R> = (queries: Queries, parameters: P) => Promise<R[]>;

/** A placeholder's text; no value of ours begins so. */
const MARK = '\0parameter:';

/**
 * Prepares a query for hot paths: building and compiling it costs more than running it. `build` is run at the first use; it
 * gets each parameter by its name and may only hand them on to the query, as values.
 */
export function prepare<P extends object, R = unknown>(
  build: (queries: Queries, parameters: P) => Compilable<R> | CompiledQuery<R>,
): Prepared<P, R> {
  // By the kind of database, which compiles a query in its own way.
  const compiled = new WeakMap<object, Template<P, R>>();
  return async (queries, parameters) => {
    const { adapter, plugins } = queries.getExecutor();
    // They may look at each query.
    if (plugins.length > 0) return (await queries.executeQuery<R>(compiledOf(build(queries, parameters)))).rows;
    let template = compiled.get(adapter);
    if (template === undefined) {
      template = compile(queries, build);
      compiled.set(adapter, template);
    }
    const { query, names } = template;
    const values = names.map((name, index) => (name === null ? query.parameters[index] : parameters[name]));
    return (await queries.executeQuery<R>({ ...query, parameters: values })).rows;
  };
}

interface Template<P, R> {
  readonly query: CompiledQuery<R>;
  /** The parameter that stands at each place; null: a value of the query itself. */
  readonly names: readonly (keyof P | null)[];
}

function compile<P extends object, R>(
  queries: Queries,
  build: (queries: Queries, parameters: P) => Compilable<R> | CompiledQuery<R>,
): Template<P, R> {
  const query = compiledOf(build(queries, new Proxy({} as P, { get: (_, name) => `${MARK}${String(name)}` })));
  const names = query.parameters.map(value =>
    typeof value === 'string' && value.startsWith(MARK) ? (value.slice(MARK.length) as keyof P) : null,
  );
  return { query, names };
}

function compiledOf<R>(built: Compilable<R> | CompiledQuery<R>): CompiledQuery<R> {
  return 'sql' in built ? built : built.compile();
}
