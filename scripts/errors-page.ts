import { CALL_CODES, META_CODES, type NumericCode } from '../src/core/codes.ts';

const RETRIED = CALL_CODES.filter(row => row.isRetried)
  .map(row => row.code)
  .join(', ');

const SECTIONS: readonly { readonly where: NumericCode['where']; readonly title: string; readonly intro: string }[] = [
  {
    where: 'meta_service',
    title: 'meta_service',
    intro:
      'Every answer has `code` (0: success) and `message`. An invalid request is a 400 where the table says so; ' +
      'a conflict with stored data is a 200 with its code; errors of the service are a 500.',
  },
  {
    where: 'user code',
    title: 'User code',
    intro:
      'An agent answers `invoke failed: code=<n> err=<text>` with status 500; the function service answers the code. ' +
      'Both have the code in the header `X-Inner-Code`.',
  },
  {
    where: 'function service',
    title: 'Function service',
    intro:
      'Calls that are refused for lack of capacity carry `Retry-After`. ' +
      `With ${RETRIED} the call has not begun: the service retries an asynchronous call.`,
  },
];

/** Returns docs/reference/errors.md. */
export function errorsPage(): string {
  const codes: readonly NumericCode[] = [...Object.values(META_CODES), ...CALL_CODES];
  const lines = [
    '# Error codes',
    '',
    '<!-- Made from src/core/codes.ts by `npm run generate`. Do not edit. -->',
    '',
    'Refusals by an entry itself (401, 403, 404, 408, 413, 421, 429, 431, 400 for bytes that are not HTTP, and 503 while the service starts) have the HTTP status in `code`, on both entries.',
  ];
  for (const { where, title, intro } of SECTIONS) {
    lines.push('', `## ${title}`, '', intro, '', '| Code | HTTP status | Meaning |', '|---|---|---|');
    const own = codes.filter(code => code.where === where).toSorted((a, b) => a.code - b.code);
    for (const { code, http, text, meaning } of own) {
      const means = [text === undefined ? '' : `\`${text}\``, meaning].filter(part => part !== '').join('; ');
      lines.push(`| ${code} | ${http} | ${means} |`);
    }
  }
  return `${lines.join('\n')}\n`;
}
