import { isJsonObject } from './json.ts';
import type { Kind } from './kind.ts';
import { nearest, simplify } from './nearest.ts';
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
