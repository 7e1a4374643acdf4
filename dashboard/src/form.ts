import { useState } from 'preact/hooks';

/** Sentences that say what is wrong, by the fields of a form. */
export type Faults = Readonly<Record<string, string>>;

/** The texts of a form and the faults of its fields. A change of a field removes its fault. */
export function useForm<F extends Readonly<Record<string, string>>>(begin: F) {
  const [form, setForm] = useState(begin);
  const [faults, setFaults] = useState<Faults>({});
  const clear = (name: string) => setFaults({ ...faults, [name]: '' });
  const field = (name: keyof F & string) => ({
    value: form[name] as string,
    fault: faults[name] ?? '',
    onInput: (value: string) => {
      setForm({ ...form, [name]: value });
      clear(name);
    },
  });
  return { form, faults, setFaults, clear, field };
}

/** Returns the faults that have a text. */
export function withoutEmpty(faults: Faults): Faults {
  return Object.fromEntries(Object.entries(faults).filter(([, fault]) => fault !== ''));
}
