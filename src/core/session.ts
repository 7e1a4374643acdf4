import { failAtFirst, type JsonObject } from './json.ts';
import { text } from './kind.ts';
import { object, optional, type ValueOf } from './shape.ts';

const SESSION_FIELDS = {
  token: optional(text(), '', 'A token, as the header `X-Auth` would carry it.'),
  code: optional(text(), '', 'Instead of a token: the code of a one-time link.'),
};

/** The body of a login of the dashboard. */
export const SESSION = object<ValueOf<typeof SESSION_FIELDS>>(SESSION_FIELDS);

/** Reads the body of a login. Fails with `invalid_request`. */
export function readSession(body: JsonObject): ValueOf<typeof SESSION_FIELDS> {
  return SESSION.read(body, '', failAtFirst) as ValueOf<typeof SESSION_FIELDS>;
}
