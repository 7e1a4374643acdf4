import { nearest, simplify } from './nearest.ts';

/** Names that a reader looks for in an object, each with what stands in for an object that was not sent: its names are known too. */
type AskedNames = Map<string, object | undefined>;

/** Objects that no reader looks into by name (maps of texts, values of any shape) are not here: they have no unknown fields. */
const askedOf = new WeakMap<object, AskedNames>();

/**
 * Every reader of a request tells here which names it looks for, whether they are there or not. So what is left is unknown, and no
 * second list of names has to be kept.
 */
export function noteAsked(source: object, name: string, standIn?: object): void {
  const names = askedOf.get(source);
  if (names === undefined) askedOf.set(source, new Map([[name, standIn]]));
  else if (standIn !== undefined || !names.has(name)) names.set(name, standIn);
}

/** A request with thousands of unknown fields has an answer of readable size. */
const MAX_WARNINGS = 20;
const MAX_PATH_CHARS = 200;

interface Place {
  readonly path: string;
  readonly name: string;
}

/**
 * A sentence for each field of a body that nobody asked for; null is absent, here too. To be called when the whole body has been
 * read: what a reader did not come to would look unknown.
 */
export function unknownFieldWarnings(body: unknown): readonly string[] {
  const unknown: (Place & { readonly siblings: readonly Place[] })[] = [];
  let left = 0;
  const walk = (value: unknown, path: string): void => {
    if (Array.isArray(value)) {
      value.forEach((item, index) => {
        if (!Array.isArray(item)) walk(item, `${path}[${index}]`);
      });
      return;
    }
    const asked = namesOf(value);
    if (asked === undefined) return;
    for (const [name, item] of Object.entries(value as object)) {
      if (asked.has(name)) walk(item, join(path, name));
      else if (item !== null && unknown.length < MAX_WARNINGS) {
        const siblings = [...asked.keys()].map(known => ({ path: join(path, known), name: known }));
        unknown.push({ path: join(path, name), name, siblings });
      } else if (item !== null) left += 1;
    }
  };
  walk(body, '');
  if (unknown.length === 0) return [];
  const everywhere = knownPlaces(body, '');
  const warnings = unknown.map(({ path, name, siblings }) => {
    const meant = suggestion(name, siblings, everywhere);
    return `unknown field ${path.slice(0, MAX_PATH_CHARS)} was ignored${meant === null ? '' : `; did you mean ${meant}?`}`;
  });
  return left === 0 ? warnings : [...warnings, `${left} more unknown fields were ignored`];
}

function namesOf(value: unknown): AskedNames | undefined {
  return typeof value === 'object' && value !== null ? askedOf.get(value) : undefined;
}

/** The fields that a body like this one may have, those in arrays left out: an item of an array is no place to move a field to. */
function knownPlaces(value: unknown, path: string): Place[] {
  const places: Place[] = [];
  for (const [name, standIn] of namesOf(value) ?? []) {
    const at = join(path, name);
    places.push({ path: at, name }, ...knownPlaces((value as Record<string, unknown>)[name] ?? standIn, at));
  }
  return places;
}

/** The same name elsewhere is meant rather than a similar one here, and that rather than a similar one elsewhere. */
function suggestion(name: string, siblings: readonly Place[], everywhere: readonly Place[]): string | null {
  const spelled = (place: Place) => simplify(place.name) === simplify(name);
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

function join(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}
