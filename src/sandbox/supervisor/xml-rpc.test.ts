import { expect, test } from 'vitest';
import { decodeAnswer, encodeCall, faultIn, XmlRpcFault } from './xml-rpc.ts';

const answer = (value: string) =>
  `<?xml version='1.0'?>\n<methodResponse>\n<params>\n<param>\n${value}\n</param>\n</params>\n</methodResponse>\n`;

test('encodeCall writes the method name and each value with its type', () => {
  expect(encodeCall('a.b', ['x<&>', 1, 1.5, true, null, [2], { n: 'v' }])).toBe(
    '<?xml version="1.0"?><methodCall><methodName>a.b</methodName><params>' +
      '<param><value><string>x&lt;&amp;&gt;</string></value></param>' +
      '<param><value><int>1</int></value></param>' +
      '<param><value><double>1.5</double></value></param>' +
      '<param><value><boolean>1</boolean></value></param>' +
      '<param><value><nil/></value></param>' +
      '<param><value><array><data><value><int>2</int></value></data></array></value></param>' +
      '<param><value><struct><member><name>n</name><value><string>v</string></value></member></struct></value></param>' +
      '</params></methodCall>',
  );
});

test.each([
  ['<value><string>a &amp; b &lt;c&gt; &#65;&#x42; &quot;&apos;</string></value>', 'a & b <c> AB "\''],
  ['<value><int>-7</int></value>', -7],
  ['<value><i4>7</i4></value>', 7],
  ['<value><double>1.5</double></value>', 1.5],
  ['<value><boolean>0</boolean></value>', false],
  ['<value><string></string></value>', ''],
  ['<value><string/></value>', ''],
  ['<value/>', ''],
  ['<value> without a type </value>', ' without a type '],
  ['<value><nil/></value>', null],
  ['<value><array><data/></array></value>', []],
  ['<value><array><data>\n<value><int>1</int></value>\n<value>x</value>\n</data></array></value>', [1, 'x']],
  ['<value><struct>\n<member>\n<name>a</name>\n<value><int>1</int></value>\n</member>\n</struct></value>', { a: 1 }],
])('decodeAnswer returns the value of %s', (text, value) => {
  expect(decodeAnswer(answer(text))).toEqual(value);
});

test('decodeAnswer throws a fault with its code and text, and faultIn finds a fault in a list', () => {
  const struct =
    '<value><struct><member><name>faultCode</name><value><int>10</int></value></member>' +
    '<member><name>faultString</name><value><string>BAD_NAME: x</string></value></member></struct></value>';
  const whole = `<?xml version='1.0'?>\n<methodResponse>\n<fault>\n${struct}\n</fault>\n</methodResponse>`;
  expect(() => decodeAnswer(whole)).toThrow(expect.objectContaining({ code: 10, message: 'BAD_NAME: x' }));
  const [value] = decodeAnswer(answer(`<value><array><data>${struct}</data></array></value>`)) as [never];
  expect(faultIn(value)).toBeInstanceOf(XmlRpcFault);
  expect(faultIn(true)).toBeNull();
  expect(faultIn({ name: 'x' })).toBeNull();
});

test.each([
  ['', 'expected <methodResponse>'],
  ['<html>not this</html>', 'expected <methodResponse>'],
  ['<methodResponse><params><param><value><int>1', 'expected </int>'],
  ['<methodResponse><params><param>', 'expected <value>'],
])('decodeAnswer rejects an invalid answer and gives the reason: %s', (text, message) => {
  expect(() => decodeAnswer(text)).toThrow(message);
});

test('decodeAnswer limits the number of nested levels', () => {
  const deep = '<value><array><data>'.repeat(1000);
  expect(() => decodeAnswer(answer(deep))).toThrow('levels');
});

test('decodeAnswer returns a member named __proto__ as an own property', () => {
  const text = '<value><struct><member><name>__proto__</name><value><int>1</int></value></member></struct></value>';
  expect(Object.keys(decodeAnswer(answer(text)) as object)).toEqual(['__proto__']);
});
