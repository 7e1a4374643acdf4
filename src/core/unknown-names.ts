import { isJsonObject } from './json.ts';
import type { Kind } from './kind.ts';
import { join } from './shape.ts';

/** Keeps the answer readable when a request has thousands of unknown fields. */
const MAX_WARNINGS = 20;
const MAX_PATH_CHARS = 200;

interface UnknownField {
  readonly path: string;
  readonly name: string;
}

/**
 * Returns a sentence for each field of a body that its declaration lacks. Null counts as absent. Maps with
 * names of the caller's choice, and values of any shape, have no unknown fields.
 */
export function unknownFieldWarnings(shape: Kind<unknown>, body: unknown): readonly string[] {
  const unknown: (UnknownField & { readonly siblings: readonly UnknownField[] })[] = [];
  let left = 0;
  const walk = ({ fields, items, isFree }: Kind<unknown>, value: unknown, path: string): void => {
    if (Array.isArray(value) && items !== undefined && value.length <= items.max) {
      value.forEach((item, index) => void walk(items.kind, item, `${path}[${index}]`));
    }
    if (fields === undefined || isFree || !isJsonObject(value)) return;
    for (const [name, item] of Object.entries(value)) {
      const field = Object.hasOwn(fields, name) ? fields[name] : undefined;
      if (field !== undefined) walk(field.kind, item, join(path, name));
      else if (item !== null && unknown.length < MAX_WARNINGS) {
        const siblings = Object.keys(fields).map(known => ({ path: join(path, known), name: known }));
        unknown.push({ path: join(path, name), name, siblings });
      } else if (item !== null) left += 1;
    }
  };
  walk(shape, body, '');
  if (unknown.length === 0) return [];
  const everywhere = knownPlaces(shape, body, '');
  const warnings = unknown.map(({ path, name, siblings }) => {
    const meant = suggestion(name, siblings, everywhere);
    return `unknown field ${path.slice(0, MAX_PATH_CHARS)} was ignored${meant === null ? '' : `; did you mean ${meant}?`}`;
  });
  return left === 0 ? warnings : [...warnings, `${left} more unknown fields were ignored`];
}

/**
 * Returns the fields that a body like this one may have. Fields in arrays are excluded, because a field
 * cannot move into an array item.
 */
function knownPlaces({ fields, isMode, isFree }: Kind<unknown>, value: unknown, path: string): UnknownField[] {
  const isSent = value !== undefined && value !== null;
  if (fields === undefined || isFree || (isSent ? !isJsonObject(value) : isMode)) return [];
  return Object.entries(fields).flatMap(([name, { kind }]) => {
    const at = join(path, name);
    const inside = isSent ? (value as Record<string, unknown>)[name] : undefined;
    return [{ path: at, name }, ...knownPlaces(kind, inside, at)];
  });
}

/**
 * Returns the path that was probably meant. The order is: the same name anywhere, a similar name here, a
 * similar name elsewhere.
 */
function suggestion(
  name: string,
  siblings: readonly UnknownField[],
  everywhere: readonly UnknownField[],
): string | null {
  const spelled = (place: UnknownField) => simplify(place.name) === simplify(name);
  const same = siblings.find(spelled) ?? everywhere.find(spelled);
  if (same !== undefined) return same.path;
  for (const places of [siblings, everywhere]) {
    const near = nearest(
      name,
      places.map(place => place.name),
    );
    if (near !== null) return places.find(place => place.name === near)?.path ?? null;
  }
  return null;
}

/** Returns the entry of `names` that `given` most likely meant, or null if more than a third differs. */
export function nearest(given: string, names: Iterable<string>): string | null {
  const wanted = simplify(given);
  let best: string | null = null;
  let bestDistance = Math.max(1, Math.floor(wanted.length / 3)) + 1;
  for (const name of names) {
    const distance = editDistance(wanted, simplify(name));
    if (distance < bestDistance) {
      best = name;
      bestDistance = distance;
    }
  }
  return best;
}

/** Removes case and separators, which are the most frequent mistakes in names. */
export function simplify(name: string): string {
  return name
    .slice(0, 100)
    .toLowerCase()
    .replace(/[^a-z0-9]/g, '');
}

/** Returns Levenshtein's distance, which counts two swapped neighbours once. */
function editDistance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, column) => column)];
  const at = (row: number, column: number): number => rows[row]?.[column] ?? Number.POSITIVE_INFINITY;
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    rows.push(current);
    for (let column = 1; column <= b.length; column++) {
      const isSame = a[row - 1] === b[column - 1];
      const isSwapped = a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      current.push(
        Math.min(
          at(row - 1, column) + 1,
          (current[column - 1] ?? 0) + 1,
          at(row - 1, column - 1) + (isSame ? 0 : 1),
          isSwapped ? at(row - 2, column - 2) + 1 : Number.POSITIVE_INFINITY,
        ),
      );
    }
  }
  return at(a.length, b.length);
}
