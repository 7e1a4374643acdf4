import { type TSchema, Type } from 'typebox';
import { errorDocs } from '../http/docs.ts';
import { Failed } from './schemas.ts';

/** An answer 200 in the documents: the success, or the failure that comes with 200 too. */
export function handled(description: string, success: TSchema, failure: TSchema = Failed): object {
  return {
    description: `${description} Other codes than 0 are failures; see docs/errors.md.`,
    content: { 'application/json': { schema: Type.Union([success, failure]) } },
  };
}

/** Answers of every operation with a body. */
export const WRONG_BODY = { 400: errorDocs('130600: the body is not JSON, or no object.') };
export const WRONG_REQUEST = {
  400: errorDocs('4104: the request is wrong by itself. 130600: the body is no JSON object.'),
};
