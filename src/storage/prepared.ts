import type { Compilable, CompiledQuery, Kysely } from 'kysely';
import type { Tables } from './database.ts';

/** The database or a transaction: whatever can run a query. */
export type Queries = Kysely<Tables>;

/** A query that is built and compiled once and run many times. */
export type Prepared<P, R> = (queries: Queries, parameters: P) => Promise<R[]>;

/** Prefix of the text of a placeholder. No stored value begins with it. */
const MARK = '\0parameter:';

/**
 * Prepares a query for hot paths, where building and compiling a query costs more than running it. The first
 * use runs `build`, which gets each parameter by its name. `build` may only pass parameters to the query as
 * values.
 */
export function prepare<P extends object, R = unknown>(
  build: (queries: Queries, parameters: P) => Compilable<R> | CompiledQuery<R>,
): Prepared<P, R> {
  // One template per kind of database, since each kind compiles a query in its own way.
  const compiled = new WeakMap<object, CompiledTemplate<P, R>>();
  return async (queries, parameters) => {
    const { adapter, plugins } = queries.getExecutor();
    // A plugin may inspect each query, so nothing is cached.
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

interface CompiledTemplate<P, R> {
  readonly query: CompiledQuery<R>;
  /** The parameter at each position of the query; null: a constant value of the query. */
  readonly names: readonly (keyof P | null)[];
}

function compile<P extends object, R>(
  queries: Queries,
  build: (queries: Queries, parameters: P) => Compilable<R> | CompiledQuery<R>,
): CompiledTemplate<P, R> {
  const query = compiledOf(build(queries, new Proxy({} as P, { get: (_, name) => `${MARK}${String(name)}` })));
  const names = query.parameters.map(value =>
    typeof value === 'string' && value.startsWith(MARK) ? (value.slice(MARK.length) as keyof P) : null,
  );
  return { query, names };
}

function compiledOf<R>(built: Compilable<R> | CompiledQuery<R>): CompiledQuery<R> {
  return 'sql' in built ? built : built.compile();
}
