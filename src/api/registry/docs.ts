import { type TSchema, Type } from 'typebox';
import { errorDocs } from '../../http/docs.ts';
import { Failed } from './schemas.ts';

/** Documents an answer with status 200: the success, or the failure that also has status 200. */
export function handled(description: string, success: TSchema, failure: TSchema = Failed): object {
  return {
    description: `${description} Other codes than 0 are failures; see docs/reference/errors.md.`,
    content: { 'application/json': { schema: Type.Union([success, failure]) } },
  };
}

/** Error answers of every operation with a body. */
export const WRONG_BODY = { 400: errorDocs('130600: the body is not JSON, or no object.') };
export const WRONG_REQUEST = {
  400: errorDocs('4104: the request is wrong by itself. 130600: the body is no JSON object.'),
};
