import { Type } from 'typebox';
import { errorDocs } from '../http/docs.ts';

/** Parts that the documents of files, terminals and byte channels share. */
export const bytes = Type.String({ format: 'binary' });
export const errors = {
  400: errorDocs('The request is wrong, or what is at the path is not what is needed; the message says why.'),
  403: errorDocs('The role is not enough, or the sandbox’s user may not do this.'),
  404: errorDocs('`instance not found: <id>`, or there is nothing at the path.'),
  409: errorDocs('The instance is in a state in which this cannot be done, or something is there already.'),
  429: errorDocs('Too much is open in this sandbox, or its disk has no room.'),
  503: errorDocs('What runs the sandbox does not answer.'),
  504: errorDocs('It took too long.'),
};
export const upgrade = {
  101: { description: 'It is a WebSocket now.' },
  426: errorDocs('The request did not ask for an upgrade to a WebSocket.'),
};
