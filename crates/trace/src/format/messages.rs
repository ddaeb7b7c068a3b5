//! Declaration of Protocol Buffers messages. The derive of prost would bring a second syn.

/// Declares messages: first the optional fields, each with the module of `prost::encoding` for its
/// type, then the repeated messages, then the repeated numbers and strings with their modules.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident {
        $($field:ident: $type:ty as $module:ident = $tag:literal,)*
        $(; $many:ident: $item:ty = $many_tag:literal,)*
        $(;; $list:ident: $element:ty as $list_module:ident = $list_tag:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[allow(missing_docs)]
        pub struct $name {
            $(pub $field: Option<$type>,)*
            $(pub $many: Vec<$item>,)*
            $(pub $list: Vec<$element>,)*
        }

        impl prost::Message for $name {
            #[allow(unused_variables)]
            fn encode_raw(&self, buf: &mut impl prost::bytes::BufMut) {
                $(if let Some(value) = &self.$field {
                    prost::encoding::$module::encode($tag, value, buf);
                })*
                $(prost::encoding::message::encode_repeated($many_tag, &self.$many, buf);)*
                $(prost::encoding::$list_module::encode_repeated($list_tag, &self.$list, buf);)*
            }

            fn merge_field(
                &mut self,
                tag: u32,
                wire_type: prost::encoding::WireType,
                buf: &mut impl prost::bytes::Buf,
                ctx: prost::encoding::DecodeContext,
            ) -> Result<(), prost::DecodeError> {
                match tag {
                    $($tag => prost::encoding::$module::merge(
                        wire_type,
                        self.$field.get_or_insert_default(),
                        buf,
                        ctx,
                    ),)*
                    $($many_tag => prost::encoding::message::merge_repeated(
                        wire_type,
                        &mut self.$many,
                        buf,
                        ctx,
                    ),)*
                    $($list_tag => prost::encoding::$list_module::merge_repeated(
                        wire_type,
                        &mut self.$list,
                        buf,
                        ctx,
                    ),)*
                    _ => prost::encoding::skip_field(wire_type, tag, buf, ctx),
                }
            }

            fn encoded_len(&self) -> usize {
                0 $(+ self.$field.as_ref().map_or(0, |value| {
                    prost::encoding::$module::encoded_len($tag, value)
                }))*
                $(+ prost::encoding::message::encoded_len_repeated($many_tag, &self.$many))*
                $(+ prost::encoding::$list_module::encoded_len_repeated($list_tag, &self.$list))*
            }

            fn clear(&mut self) {
                *self = Self::default();
            }
        }
    )*};
}
pub(crate) use messages;
