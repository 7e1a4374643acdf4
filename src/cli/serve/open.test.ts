import { describe, expect, test } from 'vitest';
import { addressFor, parseExpose } from '../agent/records.ts';

describe('the option --expose', () => {
  test.each([
    ['8000', { port: 8000 }],
    ['8000:public', { port: 8000, access: 'public' }],
    ['80:link', { port: 80, access: 'link' }],
  ])('the option --expose accepts %s', (text, expose) => expect(parseExpose(text)).toEqual(expose));

  test.each(['', 'public', '8000:', '8000:all', 'tcp:8000', '8000:public:x', '-1', '800000'])(
    'the option --expose refuses "%s"',
    text => expect(() => parseExpose(text)).toThrow('--expose must be a port, or port:access with'),
  );
});

describe('addressFor', () => {
  const here = new URL('http://127.0.0.1:8888');
  const there = new URL('http://rookery.example.org:8888');
  const of = (frontend: URL, address: string | null) =>
    addressFor(
      { addresses: { frontend, meta: frontend } },
      { port: 80, access: 'public', address, path: '/default/site/' },
    );

  test.each([
    [here, 'http://site--default.localhost:8888/', 'http://site--default.localhost:8888/'],
    [new URL('http://[::1]:8888'), 'http://site--default.localhost:8888/', 'http://site--default.localhost:8888/'],
    [there, 'http://site--default.localhost:8888/', 'http://rookery.example.org:8888/default/site/'],
    [there, 'https://site--default.apps.example.org/', 'https://site--default.apps.example.org/'],
    [there, null, 'http://rookery.example.org:8888/default/site/'],
  ])('addressFor returns a reachable URL for %s and %s', (frontend, address, shown) =>
    expect(of(frontend, address)).toBe(shown),
  );
});
